//! A tailscaled as a process: started, adopted, restarted.
