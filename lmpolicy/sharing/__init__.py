"""Hand on what was learnt and played: to the Hugging Face hub, and as a data set of Minari."""
