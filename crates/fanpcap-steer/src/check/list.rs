//! Lists and the ranges in them.

use super::value::Value;
use super::{Checker, Locals, place};
use crate::Error;
use crate::ast::{Expression, Form, Span};
use crate::error::quote;
use crate::limits::LIST_MAX;

impl<'p, 'a> Checker<'p, 'a> {
    /// The elements of a list, with ranges expanded.
    pub(super) fn elements(
        &mut self,
        elements: &'p [Expression<'a>],
        locals: &Locals<'a>,
    ) -> Result<Vec<(Value<'a>, Span)>, Error> {
        self.unstepped(elements)?;
        let mut values = Vec::with_capacity(elements.len());
        for element in elements {
            if let Form::Range(first, last) = &element.node {
                let (first, last) = (self.number(first, locals)?, self.number(last, locals)?);
                self.rises(first, last, &element.span)?;
                let count = usize::try_from(last.saturating_sub(first).saturating_add(1).max(0));
                let count = count.unwrap_or(usize::MAX).saturating_add(values.len());
                self.fits(count, &element.span)?;
                let numbers = (first..=last).map(Value::Number);
                values.extend(numbers.map(|number| (number, element.span.clone())));
            } else {
                let value = self.value(element, None, locals)?;
                values.push((value, place(element, locals)));
                self.fits(values.len(), &element.span)?;
            }
        }
        self.spend(
            values.len(),
            &elements.last().map_or(0..0, |last| last.span.clone()),
        )?;
        Ok(values)
    }

    /// Refuses `[a, b..c]`, because it is ambiguous: in Haskell it is a range with steps, and in
    /// this language it would be `a` and a range.
    fn unstepped(&self, elements: &[Expression<'a>]) -> Result<(), Error> {
        let [first, range] = elements else {
            return Ok(());
        };
        let is_range = |element: &Expression<'a>| matches!(element.node, Form::Range(..));
        if is_range(first) || !is_range(range) {
            return Ok(());
        }
        let span = first.span.start..range.span.end;
        let found = quote(&self.source[span.clone()]);
        let message = format!(
            "expected the range first, found {found}, which Haskell reads as a range with steps"
        );
        let [first, range] = [first, range].map(|part| &self.source[part.span.clone()]);
        let hint = format!("write '[{range}, {first}]', or write each number if you meant steps");
        Err(Error::new(span, message).hint(hint))
    }

    /// Refuses an empty range.
    fn rises(&self, first: i128, last: i128, span: &Span) -> Result<(), Error> {
        if first <= last {
            return Ok(());
        }
        let message = format!("expected a range that rises, found one from {first} to {last}");
        Err(Error::new(span.clone(), message).hint(format!("did you mean '{last}..{first}'?")))
    }

    /// Refuses a list that is too long.
    fn fits(&self, count: usize, span: &Span) -> Result<(), Error> {
        if count <= LIST_MAX {
            return Ok(());
        }
        let message = format!("expected a list of at most {LIST_MAX} elements, found more");
        Err(Error::new(span.clone(), message))
    }

    /// Evaluates an end of a range.
    fn number(&mut self, end: &'p Expression<'a>, locals: &Locals<'a>) -> Result<i128, Error> {
        let value = self.value(end, None, locals)?;
        let Value::Number(number) = value else {
            let at = place(end, locals);
            let found = self.describe(&value, &at);
            let message = format!("expected a number as an end of a range, found {found}");
            return Err(Error::new(at, message));
        };
        Ok(number)
    }
}
