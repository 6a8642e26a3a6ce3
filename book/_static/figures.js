// A figure is drawn when a reader comes near it or prints the page: a page of many opens sooner.
{
  const newPlot = Plotly.newPlot;
  const waiting = new Map();
  const draw = (div) => {
    near.unobserve(div);
    newPlot(div, ...waiting.get(div));
    waiting.delete(div);
  };
  const near = new IntersectionObserver(
    (places) => places.filter((place) => place.isIntersecting).forEach((place) => draw(place.target)),
    { rootMargin: "100%" }, // by as much as is seen
  );
  Plotly.newPlot = (id, ...figure) => {
    const div = document.getElementById(id);
    waiting.set(div, figure);
    near.observe(div);
  };
  addEventListener("beforeprint", () => [...waiting.keys()].forEach(draw));
}
