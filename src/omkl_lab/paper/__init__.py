"""The paper reproduced: figures, claims with verdicts, regret, quantizers, and a report."""
