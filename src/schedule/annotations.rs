//! Annotations of stages, with which a directive passes information to a later phase or pass.
//!
//! The type of the value identifies the annotation and belongs to the file of its directive.

use super::directives::Directive;
use super::state::{AxisId, Stage};
use crate::diag::Span;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// The value of an annotation.
pub trait AnnotationValue: Any + Debug + Send + Sync {}

impl<T: Any + Debug + Send + Sync> AnnotationValue for T {}

/// An annotation of a stage.
#[derive(Clone, Debug)]
pub struct StageAnnotation {
    /// The directive that made it.
    pub directive: &'static Directive,
    /// The loop that it concerns. No later directive splits or fuses it.
    pub axis: Option<AxisId>,
    /// The statement of the directive.
    pub span: Span,
    value: Arc<dyn AnnotationValue>,
}

impl StageAnnotation {
    /// Returns the value, if it has this type.
    pub fn value<T: AnnotationValue>(&self) -> Option<&T> {
        let value: &dyn Any = &*self.value;
        value.downcast_ref()
    }
}

impl Stage {
    /// Adds an annotation.
    pub(super) fn annotate(
        &mut self,
        directive: &'static Directive,
        axis: Option<AxisId>,
        span: Span,
        value: impl AnnotationValue,
    ) {
        let value = Arc::new(value);
        self.annotations.push(StageAnnotation { directive, axis, span, value });
    }

    /// Adds an annotation in place of those of the same type at the same loop.
    pub(super) fn replace_annotation<T: AnnotationValue>(
        &mut self,
        directive: &'static Directive,
        axis: Option<AxisId>,
        span: Span,
        value: T,
    ) {
        self.remove_annotations(|old, _: &T| old.axis == axis);
        self.annotate(directive, axis, span, value);
    }

    /// Removes the annotations of a type that `remove` selects.
    pub(super) fn remove_annotations<T: AnnotationValue>(
        &mut self,
        remove: impl Fn(&StageAnnotation, &T) -> bool,
    ) {
        self.annotations.retain(|old| !old.value().is_some_and(|value| remove(old, value)));
    }

    /// Changes the values of all annotations of a type.
    pub(super) fn update_annotations<T: AnnotationValue + Clone>(
        &mut self,
        update: impl Fn(&mut T),
    ) {
        for annotation in &mut self.annotations {
            if let Some(mut value) = annotation.value::<T>().cloned() {
                update(&mut value);
                annotation.value = Arc::new(value);
            }
        }
    }

    /// Returns all annotations, in the order of their directives.
    pub fn annotations(&self) -> &[StageAnnotation] {
        &self.annotations
    }

    /// Returns the annotations of a type, with their values.
    pub fn annotations_of<T: AnnotationValue>(
        &self,
    ) -> impl Iterator<Item = (&StageAnnotation, &T)> {
        self.annotations.iter().filter_map(|annotation| Some((annotation, annotation.value()?)))
    }

    /// Returns the last annotation of a type, with its value.
    pub fn annotation<T: AnnotationValue>(&self) -> Option<(&StageAnnotation, &T)> {
        self.annotations_of().last()
    }

    /// Returns the last annotation of a loop.
    pub(super) fn annotation_at(&self, axis: AxisId) -> Option<&StageAnnotation> {
        self.annotations.iter().rfind(|annotation| annotation.axis == Some(axis))
    }
}
