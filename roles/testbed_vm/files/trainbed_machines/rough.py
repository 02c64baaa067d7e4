"""Draws which node is rough in which way."""

from __future__ import annotations

import random

from trainbed_machines.plan import Request, Rough

APT_LOCK_S = 60
OTHER_SSH_PORT = 2222
#: Seconds that a clock is off.
CLOCK_S = (-40, 40)


def draw(request: Request) -> dict[str, Rough]:
    """One node for each kind of roughness, drawn by the seed; what every installer leaves is on all nodes.

    The same seed and nodes give the same result. Only a worker is hidden behind another node, and only a
    worker has a small /var: the master's holds the store, whose size is the lab's choice.
    """
    nodes = list(request.addresses)
    if not request.rough:
        return {node: Rough() for node in nodes}
    drawn = random.Random(request.seed)
    workers = [node for node in nodes if node not in request.masters] or nodes
    chosen = {
        "cloud_init": drawn.choice(nodes),
        "apt_lock": drawn.choice(nodes),
        "sudo_password": drawn.choice(nodes),
        "ssh_port": drawn.choice(nodes),
        "jump": drawn.choice(workers),
        "var": drawn.choice(workers),
        "ufw": drawn.choice(nodes),
        "daemon.json": drawn.choice(nodes),
    }
    # Its configuration would be the other's, too.
    chosen["docker-ce"] = drawn.choice([node for node in nodes if node != chosen["daemon.json"]] or [""])
    clocks = {node: drawn.randint(*CLOCK_S) for node in nodes}

    def rough(node: str) -> Rough:
        hidden = chosen["jump"] == node and node not in request.masters
        return Rough(
            cloud_init=chosen["cloud_init"] == node,
            apt_lock_s=APT_LOCK_S if chosen["apt_lock"] == node else 0,
            sudo_password=chosen["sudo_password"] == node,
            ssh_port=OTHER_SSH_PORT if chosen["ssh_port"] == node else 22,
            jump=request.masters[0] if hidden else None,
            var_mb=request.var_mb if chosen["var"] == node else 0,
            ufw=chosen["ufw"] == node,
            engine=(
                "daemon.json"
                if chosen["daemon.json"] == node
                else "docker-ce"
                if chosen["docker-ce"] == node
                else None
            ),
            clock_s=clocks[node],
        )

    return {node: rough(node) for node in nodes}


def told(rough: Rough) -> str:
    """What is rough about a node, in words."""
    said = ["its own name at 127.0.1.1", f"clock {rough.clock_s:+d} s"] if rough != Rough() else []
    if rough.cloud_init:
        said.append("cloud-init writes /etc/hosts")
    if rough.apt_lock_s:
        said.append(f"apt's lock held for {rough.apt_lock_s} s once it is provisioned")
    if rough.sudo_password:
        said.append("sudo asks for a password")
    if rough.ssh_port != 22:
        said.append(f"sshd on port {rough.ssh_port}")
    if rough.jump:
        said.append(f"reached through {rough.jump}")
    if rough.var_mb:
        said.append(f"/var of {rough.var_mb} MB")
    if rough.ufw:
        said.append("ufw is active")
    if rough.engine:
        said.append({"daemon.json": "somebody's daemon.json", "docker-ce": "docker-ce"}[rough.engine])
    return ", ".join(said) or "as clean as can be"
