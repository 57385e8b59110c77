//! The world for tests: a synchronous seeded state machine, with thin doors.
