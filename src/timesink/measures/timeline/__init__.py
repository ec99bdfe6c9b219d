"""The timeline: device work, links from host to device, launches, copies, waits and ranges."""
