"""What objects become when they enter the scheduler, before anybody looks at them. Pure; spec 10 section 3.1."""
