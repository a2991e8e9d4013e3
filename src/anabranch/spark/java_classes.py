"""Small Java classes of ours in Spark's driver, compiled there from the sources beside this file.

Some of Spark's interfaces can be implemented in the JVM only. Spark brings a compiler for the code
that it generates (Janino), so neither a jar nor a JDK is needed.
"""

from __future__ import annotations

import threading
import weakref
from importlib.resources import files
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from anabranch.errors import InvalidArgument

_lock = threading.Lock()
_loaded: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def java_object(spark: SparkSession, name: str) -> Any:
    """The one object of a class of ours (`java/<name>.java`) in the session's JVM."""
    gateway: Any = spark.sparkContext._gateway
    with _lock:  # compiled twice, it would be two classes of one name
        objects = _loaded.setdefault(gateway, {})
        if name not in objects:
            objects[name] = _create(gateway, name)
        return objects[name]


def _create(gateway: Any, name: str) -> Any:
    source = files("anabranch.spark").joinpath("java", f"{name}.java").read_text(encoding="utf-8")
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    try:
        compiler.cook(source)
    except Py4JJavaError as error:
        reason = str(error.java_exception.getMessage())
        raise InvalidArgument(
            f"This release of Spark has other internals than Anabranch knows ({name}: {reason}). "
            "Use PySpark 4.1 to 4.3."
        ) from error
    found = compiler.getClassLoader().loadClass(f"anabranch.{name}")
    constructor = found.getDeclaredConstructor(gateway.new_array(jvm.java.lang.Class, 0))
    return constructor.newInstance(gateway.new_array(jvm.java.lang.Object, 0))
