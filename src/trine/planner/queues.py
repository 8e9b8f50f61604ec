"""When a second replica helps: waiting at a single queue, by the M/D/1 formula (Poisson arrivals, fixed service time).

Mean wait = ρ / (2 μ (1 − ρ)) with μ = 1 / service time and ρ = arrival rate / μ (Pollaczek and Khinchine).  Batching is
left out here: it is the other way to carry more requests, and is shown beside.
"""

from math import inf


def latency_s(service_s: float, rate_per_s: float) -> float:
    """Mean time of a request at one server, waiting included; infinite where the queue grows without end."""
    load = rate_per_s * service_s
    if load >= 1:
        return inf
    return service_s + load * service_s / (2 * (1 - load))


def second_replica_from(service_s: float, busy_service_s: float) -> float:
    """The arrival rate (requests a second) from which two replicas, each with half of the requests and
    ``busy_service_s`` a request (they slow each other down), answer sooner than one with ``service_s``.

    0 where two are never slower, infinite where they never answer sooner, since together they carry no more than one.
    Else the rate is found by bisection below the load that one replica can carry.
    """
    low, high = 0.0, 1 / service_s
    if latency_s(busy_service_s, 0.0) <= latency_s(service_s, 0.0):
        return 0.0
    if busy_service_s >= 2 * service_s:
        return inf
    for _ in range(60):
        middle = (low + high) / 2
        if latency_s(busy_service_s, middle / 2) < latency_s(service_s, middle):
            high = middle
        else:
            low = middle
    return high
