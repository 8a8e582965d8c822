"""Tables, figures and the report, made from the metrics of stored runs and from nothing else."""
