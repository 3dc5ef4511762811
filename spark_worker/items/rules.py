"""The rules by which a value of an item becomes a value of Spark: one table, for msgpack and JSON.

A ``TypeRule`` belongs to a type of Spark. Its ``read`` is the rule: it gives the value of one item, or refuses it.
Nothing is rounded, cut or guessed, but for the fraction of a FLOAT or DOUBLE. The other methods read many values at
once, and take only what ``read`` takes, too: they raise ``Unsure`` or an error of Arrow about everything else.

| type | msgpack | JSON |
|---|---|---|
| BOOLEAN | boolean | boolean |
| TINYINT to BIGINT | whole number in range | whole number in range |
| FLOAT, DOUBLE | float in range, integer that it holds exactly | number in range, "NaN" and infinities as text |
| DECIMAL | text, integer | text, number; no digit is lost |
| STRING | text | text |
| BINARY | bytes | text in Base64 |
| DATE, TIME, TIMESTAMP_NTZ | text in ISO 8601 without an offset | the same |
| TIMESTAMP | text in ISO 8601, timestamp of msgpack | text in ISO 8601 |
| INTERVAL DAY TO SECOND | text as Spark writes it | the same |
| VARIANT | all that JSON can write | any value |
| VOID | null | null |
| ARRAY, MAP, STRUCT | array, map, map | array, object, object |
"""

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from spark_worker.items.kinds import Array, ItemForm, Leaf, Map, Slot, Struct, TypeRule, arrow_of, unknown_type
from spark_worker.items.scalars import SCALARS, json_variant_text, variant_text


def kind_of(data_type: DataType, form: ItemForm) -> TypeRule:
    """Find the rules of a type.

    Raises:
        ConfigurationError: no value of this format can become one of the type.
    """
    if isinstance(data_type, StructType):
        slots = {field.name: Slot(kind_of(field.dataType, form), not field.nullable) for field in data_type}
        return Struct(data_type.simpleString(), arrow_of(data_type), slots)
    if isinstance(data_type, ArrayType):
        element = Slot(kind_of(data_type.elementType, form), not data_type.containsNull)
        return Array(data_type.simpleString(), arrow_of(data_type), element)
    if isinstance(data_type, MapType):
        value = Slot(kind_of(data_type.valueType, form), not data_type.valueContainsNull)
        return Map(data_type.simpleString(), arrow_of(data_type), kind_of(data_type.keyType, form), value)
    if make := SCALARS.get(type(data_type)):
        return make(data_type, form)
    raise unknown_type(data_type)


def column_of(data_type: DataType, form: ItemForm) -> TypeRule:
    """Find the rules of a column, as ``kind_of`` does; of VARIANT it gets the JSON, which Spark parses faster."""
    if isinstance(data_type, VariantType):
        text = json_variant_text if form is ItemForm.JSON else variant_text
        return Leaf(data_type.simpleString(), pa.string(), None, text, {})
    return kind_of(data_type, form)
