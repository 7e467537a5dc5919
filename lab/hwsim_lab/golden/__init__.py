"""Campaigns, surveys and open questions: long comparisons of hardware and simulator."""
