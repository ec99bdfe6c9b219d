/*! uPlot 1.6.32, Copyright (c) 2022 Leon Sorokin, MIT licence: https://github.com/leeoniya/uPlot */
