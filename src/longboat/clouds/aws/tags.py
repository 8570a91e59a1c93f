"""Tags that the autoscaler writes on machines and groups of AWS; a policy names them."""

from __future__ import annotations

ORDER_TAG = "longboat.dev/order"
"""Of a machine: the token of the order it was made for."""
CANCELLED_TAG = "longboat.dev/cancelled-orders"
"""Of an Auto Scaling group: tokens of orders of which nothing is to be made."""
