"""Nsight Compute: reports (.ncu-rep, .ncu-repz) and the CSV pages that ncu prints.

The report format is documented (Nsight Compute's Customization Guide, "Report File Format"): length-prefixed blocks of
protocol-buffer messages. We need a dozen fields of them, so `wire` decodes those directly: no generated code, no
dependency, and every length is checked where it is used. NVIDIA's own reader takes random bytes, an empty file and a
truncated file without complaint and hides versions, driver, command line and clock state; this one does neither.
"""
