//! Small programs: what their graphs hold, and which errors they give.
