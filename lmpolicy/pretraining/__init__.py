"""How a tiny language model is made from random play; the bundled ones are its products."""
