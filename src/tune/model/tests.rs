//! Properties of the model.
