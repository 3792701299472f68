"""How the fitted power of regret depends on the rate: eta = eta_0 / sqrt(T), five seeds, T = 80 ... 5120."""

from omkl_lab.paper import regret


def main() -> None:
    for rate in (3.0, 5.0, 10.0, 20.0, 30.0):
        regret.ETA_0 = rate
        for name, study in (("own samples", regret.theorem(5)), ("all nodes' samples", regret.pooled(5))):
            powers = ", ".join(f"{case} {power.mean:.3f}" for case, power in study.exponents.items())
            print(f"eta_0 = {rate:<4g} {name:<20} {powers}", flush=True)


if __name__ == "__main__":
    main()
