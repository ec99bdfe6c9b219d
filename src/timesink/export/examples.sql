-- top-kernels: Which kernels take most GPU time?
SELECT name, count(*) AS launches, sum(end_ns - start_ns) AS total_ns FROM device_ops WHERE kind = 'kernel' GROUP BY
name ORDER BY total_ns DESC, name LIMIT 10

-- steps: How long does each step take?
SELECT rank, device, step, period_ns FROM steps ORDER BY rank, device, step

-- idle-by-cause: What does each GPU wait for while it is idle?
SELECT rank, device, cause, sum(end_ns - start_ns) AS idle_ns, count(*) AS stretches FROM idle GROUP BY ALL ORDER BY
rank, device, idle_ns DESC, cause

-- longest-gaps: Which are the longest idle stretches, and in which operator or call?
SELECT rank, device, start_ns - (SELECT min(start_ns) FROM device_ops) AS since_first_ns, end_ns - start_ns AS
length_ns, cause, host_op, call FROM idle ORDER BY length_ns DESC, start_ns LIMIT 10

-- copies: Which copies move how much, at which rate?
SELECT copy_kind, src_memory, dst_memory, count(*) AS copies, sum(bytes) AS moved_bytes, sum(bytes) /
nullif(sum(end_ns - start_ns), 0) AS gigabytes_per_s FROM device_ops WHERE kind = 'copy' GROUP BY ALL ORDER BY
moved_bytes DESC NULLS LAST, copy_kind, src_memory, dst_memory

-- slow-calls: Which CUDA calls keep the host longest?
SELECT name, count(*) AS calls, sum(end_ns - start_ns) AS total_ns, max(end_ns - start_ns) AS longest_ns FROM
api_calls GROUP BY name ORDER BY total_ns DESC, name LIMIT 10

-- ranges: How long is the program in each range, and how long does the GPU work for it?
SELECT name, count, total_ns, device_ns, idle_ns, backward_ns FROM range_times ORDER BY total_ns DESC, name LIMIT 10

-- launch-delay: How long after its launch call does a kernel start?
SELECT k.name, count(*) AS launches, median(k.start_ns - c.start_ns) AS delay_ns FROM device_ops k JOIN api_calls c ON
k.rank = c.rank AND k.process = c.process AND k.correlation = c.correlation WHERE k.kind = 'kernel' GROUP BY k.name
ORDER BY delay_ns DESC, k.name LIMIT 10

-- streams: How much work does each stream carry?
SELECT rank, device, stream, count(*) AS ops, sum(end_ns - start_ns) AS busy_ns FROM device_ops GROUP BY ALL ORDER BY
rank, device, busy_ns DESC, stream

-- small-kernels: How many kernels are shorter than 5 microseconds?
SELECT rank, device, count(*) FILTER (end_ns - start_ns < 5000) AS short, count(*) AS kernels, avg((end_ns - start_ns
< 5000)::INT) AS short_ratio FROM device_ops WHERE kind = 'kernel' GROUP BY ALL ORDER BY rank, device

-- time-per-step: How much kernel time falls into each step?
SELECT s.rank, s.device, s.step, any_value(s.period_ns) AS period_ns, sum(o.end_ns - o.start_ns) AS kernel_ns FROM
steps s JOIN device_ops o ON o.rank = s.rank AND o.device = s.device AND o.start_ns >= s.start_ns AND o.start_ns <
s.end_ns WHERE o.kind = 'kernel' GROUP BY s.rank, s.device, s.step ORDER BY s.rank, s.device, s.step
