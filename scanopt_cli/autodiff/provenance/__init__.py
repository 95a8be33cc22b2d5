"""The pedigree of Scans: which is the pullback of which, or carries its tangents."""
