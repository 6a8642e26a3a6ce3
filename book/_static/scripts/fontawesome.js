// In place of the theme's file of this name: 1.5 MB that draw each icon again over its web font.
