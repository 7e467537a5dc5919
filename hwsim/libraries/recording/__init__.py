"""Recording of what a library answers on a user's own GPU, and comparing it with hwsim: nothing that a run needs."""
