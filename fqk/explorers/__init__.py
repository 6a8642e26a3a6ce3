"""Widgets that work in JupyterLab with a kernel, and on a static page without one."""

from fqk.explorers.emd import EMDExplorer, Modes
from fqk.explorers.filter import FilterExplorer
from fqk.explorers.frequency import FrequencyExplorer
from fqk.explorers.leak import LeakMicroscope
from fqk.explorers.results import ResultsExplorer

__all__ = [
    "EMDExplorer",
    "FilterExplorer",
    "FrequencyExplorer",
    "LeakMicroscope",
    "Modes",
    "ResultsExplorer",
]
