//! A tailscaled by its LocalAPI: HTTP over a unix socket.
