"""The page of `explore`: an SM or CU to play with, worked out in the browser by the lab's rules."""
