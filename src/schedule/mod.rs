//! Schedules: the directives of a schedule block, checked and applied. This version applies only
//! the default schedule.
