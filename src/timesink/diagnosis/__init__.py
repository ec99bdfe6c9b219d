"""From a trace and rules to a diagnosis: verdicts, rules, prices and the headline."""
