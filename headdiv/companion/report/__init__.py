"""Tables, figures and the report, from what is stored of runs; run notebooks and the explorer show trained models."""
