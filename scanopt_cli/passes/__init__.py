"""The clean-up passes, one a file, and the pipeline that runs them."""
