"""The parts of a bus in virtual time; the simulation is made of them."""
