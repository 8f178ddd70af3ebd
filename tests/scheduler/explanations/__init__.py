"""Tests of the ScheduleExplanation controller."""
