"""Studies: accuracy tables, comparisons of two settings, tuning, sensitivity, and the speed of hwsim itself."""
