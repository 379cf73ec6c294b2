//! Headscale by its REST API, versions 0.26 to 0.29.
