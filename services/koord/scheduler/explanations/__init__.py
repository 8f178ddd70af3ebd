"""ScheduleExplanations: questions of users why pods wait, answered in the objects' status."""
