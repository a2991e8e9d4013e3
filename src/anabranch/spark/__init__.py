"""The Spark side: plans in the driver, lanes in the tasks."""
