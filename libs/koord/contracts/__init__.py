"""What travels on the bus: subjects, message structs and their codec. proto/bus is generated from here."""
