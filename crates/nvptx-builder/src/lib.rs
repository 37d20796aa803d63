//! A typed builder of PTX text.
