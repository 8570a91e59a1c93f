"""Cluster files of AWS for tests."""

from __future__ import annotations

PRIVATE = """
name: lab
kind: aws
region: us-east-1
pools:
- {name: cpu, type: m5.large, count: 1, max: 3}
- name: gpu-large
  type: g5.12xlarge
  min: 0
  max: 4
  spot: true
  labels: {team: vision}
  taints: ["nvidia.com/gpu=present:NoSchedule"]
"""

AUTOSCALED = """
name: lab
kind: aws
region: us-east-1
network: {nodes: public, zones: [us-east-1a, us-east-1b]}
pools:
- {name: cpu, type: m5.large}
- {name: gpu, type: g5.xlarge, min: 0, max: 4}
addons: [gpu, autoscaler]
image: registry.example.org/longboat:1
"""

PUBLIC = """
name: lab
kind: aws
region: us-east-1
network: {nodes: public, zones: [us-east-1a, us-east-1b]}
pools:
- {name: cpu, type: m5.large}
- {name: gpu, type: g5.xlarge, min: 0, max: 4, spot: true, zones: [us-east-1b]}
storage: efs
addons: []
tags: {team: vision}
"""

EXISTING = """
name: lab
kind: aws
region: us-east-1
network:
  vpc: vpc-01234567
  subnets: {us-east-1a: subnet-01234567, us-east-1b: subnet-01234568}
  access: [192.0.2.0/24]
pools:
- {name: arm, type: m7g.large}
- name: gpu
  type: p5.48xlarge
  count: 2
  zones: [us-east-1a]
  placement_group: new
  reservation: cr-01234567
  disk: 500Gi
storage: {efs: fs-01234567}
"""
