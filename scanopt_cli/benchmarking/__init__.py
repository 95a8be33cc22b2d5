"""What calls and compilation cost: time, memory, growth, and which part of a graph takes it."""
