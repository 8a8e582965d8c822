"""headdiv: methods that make the heads of multi-head attention less redundant, and the papers behind them."""

__version__ = "0.1.0"
