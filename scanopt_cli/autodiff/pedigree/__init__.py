"""The pedigree of Scans: which one is the pullback of which other, or carries its tangents."""
