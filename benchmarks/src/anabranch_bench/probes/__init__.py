"""What a machine and its processes are seen to do: cores, memory, connections, durations."""
