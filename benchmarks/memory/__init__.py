"""Programs whose memory is measured on a GPU and planned without one."""
