"""The safe loader: a pickle read as inert records, and real graphs made of those it admits."""
