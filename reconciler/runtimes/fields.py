"""The fields of a service by what they are for, as each of them states it
(`reconciler.api.inferenceservice` and its parts)."""

from __future__ import annotations

from reconciler.api.field import DocumentField, FieldUse, fields_of
from reconciler.api.inferenceservice import InferenceServiceSpec
from reconciler.api.model_settings import ModelEntry

FIELDS: tuple[DocumentField, ...] = tuple(fields_of(InferenceServiceSpec))
_ENTRY = tuple(fields_of(ModelEntry))


def _for(use: FieldUse, fields: tuple[DocumentField, ...] = FIELDS) -> tuple[str, ...]:
    return tuple(field.path for field in fields if field.purpose.use is use)


PROCESS_FIELDS = frozenset(_for(FieldUse.PROCESS))
POD_FIELDS, SCALE_FIELDS = _for(FieldUse.POD), _for(FieldUse.SCALE)
# Fields that came later: left out where they are not stated.
STATED_FIELDS = tuple(field.path for field in FIELDS if not field.purpose.noted_unstated)
LIFECYCLE_FIELDS = tuple(path for path in _for(FieldUse.LIFECYCLE) if path not in STATED_FIELDS)
STATED_LIFECYCLE_FIELDS = tuple(p for p in _for(FieldUse.LIFECYCLE) if p in STATED_FIELDS)
# What a router has for each of its models, and what only an entry of models[] can state.
_OF_ENTRIES = _for(FieldUse.PROCESS, _ENTRY)
MODEL_FIELDS = tuple(path for path in _for(FieldUse.PROCESS) if path in _OF_ENTRIES)
ENTRY_FIELDS = tuple(path for path in _OF_ENTRIES if path not in PROCESS_FIELDS)
# An entry's value takes the place of the service's, and None is none; any other is added to it.
OVERRIDDEN_FIELDS = tuple(
    field.path for field in _ENTRY if field.path in MODEL_FIELDS and field.info.default is None
)
SERVICE_FIELDS = tuple(path for path in _for(FieldUse.PROCESS) if path not in MODEL_FIELDS)
DEFAULTS = {field.path: field.purpose.default for field in FIELDS}
