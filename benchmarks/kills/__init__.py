"""The same kills against RQ, arq, Celery and changeover: what is lost, repeated, and how long it
takes to go on."""
