//! Sweeps: `-D n=32,64,128` or `--var n=64..512*2` asks for a measurement of each value.

use super::super::report::Error;

/// The values of one name, one for each point.
#[derive(Clone, PartialEq, Debug)]
pub struct Sweep {
    /// The name on the command line: `n`, `matmul.n`, `matmul.block.tx`.
    pub name: String,
    /// The values as written.
    pub values: Vec<String>,
    /// Whether it is an option `--var`.
    pub run_time: bool,
    /// Its index among the values of its option.
    pub place: usize,
}

/// The most points; more are taken for a typing error.
const MAX_POINTS: usize = 1000;

/// Returns the sweep among the values of `-D` and `--var`, if there is one.
pub fn find(defines: &[String], vars: &[String]) -> Result<Option<Sweep>, Error> {
    let mut found: Option<Sweep> = None;
    let defines = defines.iter().enumerate().map(|(at, text)| (at, text, "-D", false));
    let vars = vars.iter().enumerate().map(|(at, text)| (at, text, "--var", true));
    for (place, text, option, run_time) in defines.chain(vars) {
        let Some((name, value)) = text.split_once('=') else { continue };
        let Some(values) = values(value).map_err(|why| usage(option, text, &why))? else {
            continue;
        };
        if let Some(first) = &found {
            let text = format!(
                "`{}` and `{name}` both have several values; a plot can be over only one of them",
                first.name
            );
            return Err(Error::Usage(text));
        }
        found = Some(Sweep { name: name.to_string(), values, run_time, place });
    }
    Ok(found)
}

fn usage(option: &str, text: &str, why: &str) -> Error {
    Error::Usage(format!("`{option} {text}`: {why}"))
}

/// Returns the values of a list, if it is one: `32,64`, `64..512+64` and `64..512*2`, separated by
/// commas.
fn values(text: &str) -> Result<Option<Vec<String>>, String> {
    // A list in brackets is one value, the extents of a pack.
    if text.starts_with('[') || !text.contains(',') && !text.contains("..") {
        return Ok(None);
    }
    let mut values: Vec<String> = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once("..") {
            _ if part.is_empty() => return Err("a value between the commas is missing".into()),
            None => values.push(part.to_string()),
            Some((first, rest)) => {
                values.extend(range(first, rest)?.iter().map(i64::to_string));
            }
        }
        if values.len() > MAX_POINTS {
            return Err(format!("more than {MAX_POINTS} values"));
        }
    }
    match values.iter().enumerate().find(|(at, value)| values[..*at].contains(value)) {
        Some((_, twice)) => Err(format!("`{twice}` occurs twice")),
        None => Ok(Some(values)),
    }
}

/// Parses `FIRST..LAST+STEP` or `FIRST..LAST*FACTOR`; `LAST` is included if a step reaches it.
fn range(first: &str, rest: &str) -> Result<Vec<i64>, String> {
    const FORM: &str = "a range is written `64..512+64` or `64..512*2`";
    let (last, by, times) = match (rest.split_once('+'), rest.split_once('*')) {
        (Some((last, step)), None) => (last, step, false),
        (None, Some((last, factor))) => (last, factor, true),
        _ => return Err(FORM.to_string()),
    };
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| FORM.to_string());
    let (first, last, by) = (number(first)?, number(last)?, number(by)?);
    match times {
        true if by < 2 || first < 1 => {
            return Err("the factor must be at least 2, and the first value at least 1".to_string());
        }
        false if by < 1 => return Err("the step must be at least 1".to_string()),
        _ if first > last => return Err(format!("{first} is greater than {last}")),
        _ => {}
    }
    let next = |value: &i64| if times { value.checked_mul(by) } else { value.checked_add(by) };
    let values = std::iter::successors(Some(first), next).take_while(|value| *value <= last);
    let values: Vec<i64> = values.take(MAX_POINTS + 1).collect();
    Ok(values)
}

impl Sweep {
    /// Replaces the sweep in `-D` or `--var` by one of its values.
    pub fn set(&self, value: &str, defines: &mut [String], vars: &mut [String]) {
        let settings = if self.run_time { vars } else { defines };
        settings[self.place] = format!("{}={value}", self.name);
    }

    /// Returns the values as numbers, if all are.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let number = |value: &String| value.parse::<f64>().ok().filter(|value| value.is_finite());
        self.values.iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Option<Vec<String>>, String> {
        values(text)
    }

    #[test]
    fn lists_and_ranges_are_parsed() {
        let some = |values: &[&str]| Ok(Some(values.iter().map(|v| v.to_string()).collect()));
        assert_eq!(list("64"), Ok(None));
        assert_eq!(list("float32"), Ok(None));
        assert_eq!(list("32,64"), some(&["32", "64"]));
        assert_eq!(list("64..300*2"), some(&["64", "128", "256"]));
        assert_eq!(list("1,2..6+2"), some(&["1", "2", "4", "6"]));
        assert_eq!(list("float32,float64"), some(&["float32", "float64"]));
    }

    #[test]
    fn malformed_lists_and_ranges_are_refused() {
        for text in ["32,,64", "64..128", "64..a*2", "0..8*2", "4..8*1", "4..8+0", "9..8+1"] {
            assert!(list(text).is_err(), "{text}");
        }
        assert!(list("1,2,1").unwrap_err().contains("`1` occurs twice"));
        assert!(list("1..99999999+1").unwrap_err().contains("more than 1000"));
    }

    #[test]
    fn only_one_name_has_several_values() {
        let texts = |texts: &[&str]| texts.iter().map(|t| t.to_string()).collect::<Vec<_>>();
        let (defines, vars) = (texts(&["l=3", "k.n=1,2"]), texts(&["m=4"]));
        let sweep = find(&defines, &vars).unwrap().expect("a sweep");
        let (mut set, mut same) = (defines.clone(), vars.clone());
        sweep.set("2", &mut set, &mut same);
        assert_eq!((set, same), (texts(&["l=3", "k.n=2"]), vars));
        assert!(matches!(find(&texts(&["n=1,2"]), &texts(&["m=3,4"])), Err(Error::Usage(_))));
        assert!(matches!(find(&texts(&["n=1", "l"]), &[]), Ok(None)));
    }
}
