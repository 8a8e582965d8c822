"""Optimiser steps and checkpoints."""
